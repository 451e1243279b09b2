"""``python -m pictures NAME``: print a picture as SVG."""

import sys

from pictures import PICTURES, markup

if len(sys.argv) != 2 or sys.argv[1] not in PICTURES:
    sys.exit(f"usage: python -m pictures NAME, one of: {', '.join(sorted(PICTURES))}")
print(markup(sys.argv[1], sys.argv[1]))
