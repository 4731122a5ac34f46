"""`python -m bolt_build` is `bolt-build`."""

import sys

from bolt_build.cli.main import main

sys.exit(main())
