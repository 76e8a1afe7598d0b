"""Plain facts, as people give them: what was asked, what was said, what someone thought of it.

Standard library only: the labelling web app and ``plaudit --help`` import this without torch.
"""
