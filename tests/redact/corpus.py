"""The corpus of secrets: shapes in which unknown ones occur, spellings of known ones."""

import base64
import html
import json
import re
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

from scripts.secret_formats import Format, formats

from tests.redact.planted import HEX, MIXED

PASSWORD = "hunter2-Xk9"
WORDS = "correct horse battery staple"
TOKEN = MIXED
BASIC = base64.b64encode(f"ann:{PASSWORD}".encode()).decode()

SHAPES: tuple[tuple[str, str], ...] = (
    # Variables and configuration files.
    ("DB_PASSWORD={}", PASSWORD),
    ("export DB_PASSWORD='{}'", PASSWORD),
    ('DB_PASSWORD="{}"', WORDS),
    ("API_KEY: {}", TOKEN),
    ("client_secret = {}", TOKEN),
    ("spring.datasource.password={}", PASSWORD),
    ("password: '{}'", WORDS),
    ("  password: {}\n  user: ann", PASSWORD),
    ('{{"password": "{}"}}', PASSWORD),
    ('{{"password": "{}"}}', WORDS),
    ('{{\\"api_key\\": \\"{}\\"}}', TOKEN),
    ('{{"auth": "{}"}}', BASIC),
    ("'secret' => '{}',", PASSWORD),
    ('secret_key_base: "{}"', HEX),
    ('password = "{}"', "@dm1n-Zq7x"),
    ("passcode={}", PASSWORD),
    ("//registry.example.org/:_authToken={}", TOKEN),
    ("_auth={}", BASIC),
    ("ENV DB_PASSWORD {}", PASSWORD),
    ("setx API_TOKEN {}", TOKEN),
    ('$env:API_TOKEN = "{}"', TOKEN),
    ("Server=db;User Id=ann;Pwd={};", PASSWORD),
    ("DefaultEndpointsProtocol=https;AccountKey={};", TOKEN),
    ("Endpoint=sb://x.example.org/;SharedAccessKey={}", TOKEN),
    ("requirepass {}", PASSWORD),
    # XML, tables and forms.
    ("<password>{}</password>", PASSWORD),
    ("<server><password>{}</password></server>", "swordfish"),
    ("<apiKey>{}</apiKey>", TOKEN),
    ('<string name="api_key">{}</string>', TOKEN),
    ("<key>Password</key>\n  <string>{}</string>", PASSWORD),
    ('<add key="DbPassword" value="{}" />', PASSWORD),
    ("| password | {} |", PASSWORD),
    ('name="password"\r\n\r\n{}\r\n--x', PASSWORD),
    ("the password is {}", PASSWORD),
    # Command lines.
    ("mytool --password {} --verbose", PASSWORD),
    ("mytool --password '{}'", PASSWORD),
    ("mytool --password={}", PASSWORD),
    ("mytool --password {}\n", "swordfish"),
    ("vault login --token {}", TOKEN),
    ("deploy --api-key {} now", TOKEN),
    ("aws --secret-access-key {}", TOKEN),
    ('["deploy", "--auth-token", "{}"]', TOKEN),
    ("curl -u ann:{} https://example.org", PASSWORD),
    ('curl -u "ann:{}" https://example.org', "swordfish"),
    ("curl --user ann:{} https://example.org", PASSWORD),
    ("curl -sS -X POST https://example.org/a/long/path/to/it -u ann:{}", PASSWORD),
    ("curl --proxy-user ann:{} x", PASSWORD),
    ("mysql -u root -p{} shop", PASSWORD),
    ("mysqldump --password={} shop", PASSWORD),
    ("sshpass -p {} ssh ann@db", PASSWORD),
    ("sshpass -p '{}' ssh ann@db", PASSWORD),
    ("docker login -u ann -p {} registry.example.org", PASSWORD),
    ("redis-cli -a {} ping", PASSWORD),
    ("PGPASSWORD={} psql -h db", "swordfish"),
    ("curl -d 'user=ann&password={}' https://example.org", PASSWORD),
    ("CREATE USER ann WITH PASSWORD '{}';", PASSWORD),
    ("CREATE USER 'ann'@'%' IDENTIFIED BY '{}';", PASSWORD),
    ('ConvertTo-SecureString "{}" -AsPlainText', PASSWORD),
    # Headers and cookies.
    ("Authorization: Bearer {}", TOKEN),
    ("authorization: Basic {}", BASIC),
    ("Proxy-Authorization: Basic {}", BASIC),
    ("curl -H 'Authorization: token {}'", TOKEN),
    ("X-Api-Key: {}", TOKEN),
    ("X-Auth-Token: {}", TOKEN),
    ("X-Vault-Token: {}", TOKEN),
    ("Ocp-Apim-Subscription-Key: {}", HEX),
    ("Cookie: session={}", TOKEN),
    ("cookie: theme=dark1234; session={}; lang=en", TOKEN),
    ("Set-Cookie: sid={}; Path=/; HttpOnly", TOKEN),
    ('"Set-Cookie": ["connect.sid={}; Path=/"]', TOKEN),
    ('"Cookie": "JSESSIONID={}"', HEX),
    ("curl -b 'session={}' https://example.org", TOKEN),
    ("curl --cookie session={} https://example.org", TOKEN),
    ('document.cookie = "session={}"', TOKEN),
    (".example.org\tTRUE\t/\tFALSE\t0\tsession\t{}", TOKEN),
    # Addresses.
    ("postgres://ann:{}@db:5432/shop", PASSWORD),
    ("redis://:{}@cache:6379/0", PASSWORD),
    ("https://{}@git.example.org/x.git", TOKEN),
    ("https://example.org/?access_token={}&page=2", TOKEN),
    ("https://example.org/?user=ann&password={}", PASSWORD),
    ("https://x.example.org/blob?sv=2024&sig={}%3D", HEX),
    ("https://s3.example.org/x?X-Amz-Credential=a&X-Amz-Signature={}", HEX),
    ("redirect=https%3A%2F%2Fexample.org%3Ftoken%3D{}", TOKEN),
    # Files of their own.
    ("machine example.org login ann password {}", PASSWORD),
    ("machine example.org\n  login ann\n  password {}\n", "swordfish"),
    ("db.example.org:5432:shop:ann:{}", PASSWORD),
    ("root:$6$saltsalt${}:19000:0:99999:7:::", TOKEN + MIXED),
    ("ann:$2y$10${}", TOKEN + "abcdefghijklmnopqrstu"),
    ("ann:$apr1${}", "x9Yz2Wq1$" + MIXED[:22]),
    ("[default]\naws_secret_access_key = {}", TOKEN + "/" + MIXED[:7]),
)
"""Texts with a place for the secret, and the secret."""


def _token(one: Format) -> str:
    """A made-up token. It has digits, as nearly all real ones have, if its alphabet has any."""
    tokens = [one.token(seed) for seed in range(20)]
    return next((token for token in tokens if re.search("[0-9][^0-9]*[0-9]", token)), tokens[0])


FORMATS = tuple((one, _token(one)) for one in formats())
"""Every format of the list of facts, with a token of exactly its shape, made up when it is read."""

MARKED = tuple(token for one, token in FORMATS if not one.near)
NEAR = tuple((one.near[0], token) for one, token in FORMATS if one.near)
"""Tokens without a mark of their own, each with the word that must stand near."""

PLACES = (
    "it uses {}, I think",
    "KEY={}\n",
    "export KEY='{}'",
    "  key: {}\n",
    '{{"x": ["{}"]}}',
    "X-Thing: {}\r\n",
    "<x>{}</x>",
    "{}",
)
"""Where a token may stand."""

NAMED_PLACES = (
    "{word}_key = {token}",
    '{word}_credentials: "{token}"\n',
    "{WORD}_ID={token}\n",
    '{{"{word}": "{token}"}}',
    '{{"{word}Id": {{"value": "{token}"}}}}',
    "curl -H 'X-{word}: {token}'",
    "the {word} one is {token}",
)

KNOWN_SECRET = "/Zq8'k&\"x <Lm>3+é$7"
"""Begins like a path, and has a character of every kind that is quoted somewhere."""


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _pairs(text: str, before: str, between: str) -> str:
    return before + between.join(f"{byte:02x}" for byte in text.encode())


def _lines(text: str, width: int, end: str) -> str:
    return end.join(text[place : place + width] for place in range(0, len(text), width))


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in a URL": lambda text: quote(text, safe=""),
    "in a URL, lower case": lambda text: re.sub(
        "%..", lambda one: one[0].lower(), quote(text, safe="")
    ),
    "in a URL, slashes kept": lambda text: quote(text, safe=";/?:@&=+$,#!'()*"),
    "in a URL, as JavaScript does": lambda text: quote(text, safe="!'()*"),
    "in a URL, as Python does": quote,
    "in a form": quote_plus,
    "in a URL in a URL": lambda text: quote(quote(text, safe=""), safe=""),
    "every byte in a URL": lambda text: _pairs(text, "%", "%"),
    "base64": _b64,
    "base64 without padding": lambda text: _b64(text).rstrip("="),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 with a line feed": lambda text: _b64(text + "\n"),
    "base64 of user:secret": lambda text: _b64(f"ann:{text}"),
    "base64 of a longer user:secret": lambda text: _b64(f"robot:{text}"),
    "base64 of another user:secret": lambda text: _b64(f"admin1:{text}"),
    "base64 of JSON": lambda text: _b64(f"[{text}, 1]"),
    "base64 of base64": lambda text: _b64(_b64(text)),
    "base64 of UTF-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal, upper case": lambda text: text.encode().hex().upper(),
    "hexadecimal with colons": lambda text: _pairs(text, "", ":"),
    "hexadecimal of user:secret": lambda text: f"ann:{text}".encode().hex(),
    "hexadecimal in words": lambda text: text.encode().hex(" ", -2),
    "escapes of bytes": lambda text: _pairs(text, "\\x", "\\x"),
    "JSON": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON in ASCII": lambda text: json.dumps(text)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text, ensure_ascii=False))[3:-3],
    "JSON in JSON, not in ASCII": lambda text: json.dumps(
        json.dumps(text, ensure_ascii=False), ensure_ascii=False
    )[3:-3],
    "ASCII JSON in ASCII JSON": lambda text: json.dumps(json.dumps(text))[3:-3],
    "JSON for pages": lambda text: (
        json.dumps(text, ensure_ascii=False)[1:-1]
        .replace("&", "\\u0026")
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    ),
    "JSON in JSON in JSON": lambda text: json.dumps(
        json.dumps(json.dumps(text, ensure_ascii=False), ensure_ascii=False), ensure_ascii=False
    )[7:-7],
    "HTML": html.escape,
    "XML": lambda text: html.escape(text, quote=False),
    "a quoted word of a shell": lambda text: shlex.quote(text)[1:-1],
    "a Python string": lambda text: repr(text)[1:-1],
    "backwards": lambda text: text[::-1],
    "a word of a shell, escaped": lambda text: re.sub(
        r"[ '\"\\|&;()<>!{}*\[\]?^$`,]", r"\\\g<0>", text
    ),
    "a quoted word with escapes": lambda text: re.sub(r'["$`\\]', r"\\\g<0>", text),
    "capital letters": str.upper,
    "small letters": str.lower,
    "base64 in capital letters": lambda text: _b64(text).upper(),
    "UTF-16": lambda text: text.encode("utf-16-le").decode("utf-8", "surrogateescape"),
    "UTF-16, the other way": lambda text: text.encode("utf-16-be").decode(
        "utf-8", "surrogateescape"
    ),
    "base64 of UTF-16, the other way": lambda text: base64.b64encode(
        text.encode("utf-16-be")
    ).decode(),
    "hexadecimal of UTF-16": lambda text: text.encode("utf-16-le").hex(),
    "lines of 8": lambda text: _lines(text, 8, "\n"),
    "lines of 8 with carriage returns": lambda text: _lines(text, 8, "\r\n"),
    "lines of base64": lambda text: _lines(_b64(text), 9, "\n"),
    "lines of base64 in JSON": lambda text: _lines(_b64(text), 9, "\\n"),
    "lines of hexadecimal": lambda text: _lines(text.encode().hex(), 16, "\r\n"),
    "lines of a shell": lambda text: _lines(_b64(text), 9, "\\\n"),
    "every letter in colour": lambda text: "".join(f"\x1b[1;31m{one}\x1b[0m" for one in text),
    "colours of 256": lambda text: f"{text[:4]}\x1b[38;5;208m{text[4:]}",
    "colours in JSON": lambda text: f"{text[:4]}\\u001b[32m{text[4:]}",
    "bold by overstriking": lambda text: "".join(f"{one}\b{one}" for one in text),
    "underlined by overstriking": lambda text: "".join(f"_\b{one}" for one in text),
    "backspaces": "\b".join,
    "zero-width spaces": "\u200b".join,
    "zero-width joiners": "\u200d".join,
    "soft hyphens": lambda text: f"{text[:5]}\u00ad{text[5:]}",
    "a byte order mark inside": lambda text: f"{text[:5]}\ufeff{text[5:]}",
}
"""How programs write a known value."""
