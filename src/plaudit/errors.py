"""The one error that is meant for the user's eyes."""


class UserError(ValueError):
    """What is wrong, where, and what to do; the command line prints it without a traceback."""
