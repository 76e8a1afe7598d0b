"""What Sphinx needs to know; `make site` runs it on what tools/site has prepared."""

import json
import re
from functools import cache
from pathlib import Path

from sphinx.pycode import ModuleAnalyzer

ROOT = Path(__file__).resolve().parents[2]

project = "plaudit"
copyright = "the plaudit authors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.viewcode"]
exclude_patterns = []
# Quotation marks and dashes stay as they are written: many of them stand in commands.
smartquotes = False
# Snippets of pages leave things out with "…", which no grammar knows.
suppress_warnings = ["misc.highlighting_failure"]

myst_enable_extensions = ["colon_fence", "html_image"]
# Headings are linked by the names that GitHub makes, so that a page is right in both places.
myst_heading_anchors = 6

python_maximum_signature_line_length = 92
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "plaudit"
html_static_path = ["static"]
templates_path = ["templates"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {"color-brand-primary": "#0b6e5f", "color-brand-content": "#0b6e5f"},
    "dark_css_variables": {"color-brand-primary": "#6fd3bf", "color-brand-content": "#6fd3bf"},
}


def setup(app):
    """Source is read and never imported: torch is not needed to build the site."""
    homes = {
        (package, name): home
        for package, name, home in json.loads((Path(app.srcdir) / "homes.json").read_text("utf-8"))
    }

    def home_of(_, module, name):
        return homes.get((module, name.partition(".")[0]), module)

    @cache
    def read(module):
        path = ROOT.joinpath("src", *module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        analyzer = ModuleAnalyzer.for_string(file.read_text("utf-8"), module)
        return analyzer.code, analyzer.find_tags()

    def source_of(_, module):
        return read(module)

    def without_way_back(_, page, template, context, doctree):
        # A module is home to names of several packages, and Sphinx leads back to one package alone.
        if page.startswith("_modules/") and "body" in context:
            context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])

    app.connect("html-page-context", without_way_back)
    app.connect("viewcode-follow-imported", home_of)
    app.connect("viewcode-find-source", source_of)
