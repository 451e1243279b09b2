"""Settings of the documentation; `make docs` builds it, and a warning is an error."""

import importlib.metadata
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # for generate.py, mathml.py and pictures/

project = "fedrank"
author = "The fedrank authors"
copyright = "the fedrank authors"
release = version = importlib.metadata.version("fedrank")

extensions = [
    "mathml",
    "pictures",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinxcontrib.bibtex",
]

# Scripts that are run, with what they print and draw. With FEDRANK_DOCS_QUICK=1 they
# are shown without being run, and only modules that a page names have one of their own: ten minutes less.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tables of scripts without the lines that only programmers of data frames read.
os.environ["POLARS_FMT_TABLE_HIDE_DATAFRAME_SHAPE_INFORMATION"] = "1"
os.environ["POLARS_FMT_TABLE_HIDE_COLUMN_DATA_TYPES"] = "1"
sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"plot_",
    "plot_gallery": not os.environ.get("FEDRANK_DOCS_QUICK"),
    "only_warn_on_example_error": False,
    "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("pictures.thumbnails.scrape",),
    "thumbnail_size": (400, 280),
    "reset_modules": (),
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"<class 'NoneType'>",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
}

# The pages under generated/ are included by pages of reference/; the API's pages are pages of their own.
exclude_patterns = ["_build", "generated/parts"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

bibtex_bibfiles = ["../fedrank/core/references.bib"]
bibtex_reference_style = "author_year"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes stand in the class's docstring; autodoc would list them again
# Types of attributes stand in their docstrings; shape strings such as "*runs n" would be read as markup.
napoleon_attr_annotations = False

# A property may have the name of a builtin type (`Entry.bytes`); signatures mean the type.
suppress_warnings = ["ref.python"]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"fedrank {release}"
html_static_path = ["_static"]
html_css_files = ["fedrank.css"]
html_show_sphinx = False


def skip_requests(app, what, name, obj, skip, options):
    """Leave out methods that scikit-learn makes for arguments of fit and score: their texts link to its own pages."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    """Write the pages that say what the code says, before Sphinx looks for pages."""
    import generate

    app.connect("autodoc-skip-member", skip_requests)
    app.connect("builder-inited", lambda app: generate.write_all(HERE / "generated"))
