"""``python -m plaudit``: the same as the ``plaudit`` command."""

from plaudit.cli.main import main

raise SystemExit(main())
