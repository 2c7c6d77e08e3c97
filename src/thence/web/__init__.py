"""The page that thence serves: static files, read once, with headers that let nothing foreign in."""

from __future__ import annotations

from importlib.resources import files

PAGES = {"/": "index.html", "/style.css": "style.css", "/page.js": "page.js", "/icon.svg": "icon.svg"}

HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
)

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def read(name: str) -> tuple[bytes, str]:
    """A file of the page, and its content type."""
    return files(__name__).joinpath("static", name).read_bytes(), _TYPES[name.rpartition(".")[2]]
