"""The page of a served model, with a form; it makes requests to its own server only."""

from bert.reports.page import fill_page, read_part
from bert.serving.served import DEFAULT, Served


def make_page(served: Served, max_list: int) -> str:
    """Returns the page as HTML.

    Args:
      served: The model; the page requests the signature `DEFAULT`.
      max_list: Maximum number of text fields for a list of texts.
    """
    signature = served.signatures[DEFAULT]
    content = {
        "name": served.name,
        "version": served.version,
        "kind": served.kind,
        "fields": [
            {
                "name": name,
                "is_list": signature.is_list(name),
                "is_optional": name in signature.optional,
            }
            for name in signature.fields
        ],
        "max_list": max_list,
    }
    parts = {name: read_part(f"page.{name}", __package__) for name in ("html", "css", "js")}
    # The style of the reports.
    style = read_part("page.css") + parts["css"]
    return fill_page(parts["html"], style, parts["js"], served.name, content)
