"""The error that is meant for the user's eyes, and the end that a command chooses itself."""


class UserError(ValueError):
    """What is wrong, where, and what to do; the command line prints it without a traceback."""


class CommandEnd(SystemExit):
    """A command ends here by its own choice, with all said; any other `SystemExit` is somebody's fault."""
