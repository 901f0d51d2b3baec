"""What a browser would make of a page, and text that tries to change it."""

from html.parser import HTMLParser


class Events(HTMLParser):
    """What a browser's tokenizer would see: tags with attributes, and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.text = ""
        self.odd: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, tuple(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.odd.append(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "]]><svg onload=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='x",
    "&lt;b&gt; &amp;amp; &#60;b&#62;",
    "<img src=x onerror=alert(1)>",
    "\x00<b\x00>",
    "<\u202escript\u202c>",
    "\ud800<b>",
    "<style>*{display:none}</style>",
    "</pre></td></table></main>",
    "{{ 7*7 }} ${x} <%= x %>",
]
