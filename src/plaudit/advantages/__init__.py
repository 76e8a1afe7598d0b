"""How much better than expected a completion or a token was; the losses keep it free of gradient."""
