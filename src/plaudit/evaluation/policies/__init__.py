"""How good a policy is: beside others, in what it says and how, and how far it went for it."""
