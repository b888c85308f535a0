"""Planted secrets and the text around them."""

KNOWN = ("s3kr1t-Value-99", "abcabcabc1", "Pa$$w0rd!x", "zażółć-gęślą-7")

ANTHROPIC = "sk-ant-api03-" + "aB3dE6gH9jK2mN5pQ8sT"
GITHUB = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1L2M3N4O5P6"
AWS = "AKIA" + "IOSFODNN7EXAMPL3"
GOOGLE = "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1L2M3N4O5P6Q"
SLACK = "xoxb-" + "123456789012-abcdefGHIJ"
GITLAB = "glpat-" + "x1Y2z3A4b5C6d7E8f9G0"
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
MIXED = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hJ"
HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
VENDORS = (
    *(ANTHROPIC, GITHUB, AWS, GOOGLE, SLACK, GITLAB, JWT),
    *("sk_" + "test_aB3dE6gH9jK2mN5pQ8sT", "sk_" + f"live_{MIXED}", "rk_" + f"live_{MIXED}"),
    *("dop_" + f"v1_{HEX}{HEX}", "doo_" + f"v1_{HEX}{HEX}", "shpss_" + HEX, "shpat_" + HEX),
    *("whsec_" + "aB3dE6gH9jK2mN5pQ8sT1vW4", "npm_" + f"{MIXED}L2m3", "hf_" + f"{MIXED}L2"),
    "SG." + f"{MIXED[:22]}.{MIXED}{MIXED[:11]}",
    "xapp-" + f"1-A0123456789-1234567890123-{HEX}{HEX}",
    "pypi-" + f"AgEIcHlwaS5vcmc{MIXED}{MIXED}",
    "ya29." + f"a0{MIXED}-{MIXED}",
    *("hvs." + f"CAES{MIXED}", "hvb." + f"AAAA{MIXED}"),
    "AGE-SECRET-KEY-" + "1QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S3JN54KHCE",
    *("SK" + HEX, "ATATT3" + f"xFfGF0{MIXED}{MIXED}=1A2B3C4D"),
    *("glptt-" + MIXED, "gldt-" + MIXED[:20], "xai-" + MIXED * 2, "pplx-" + MIXED * 2),
    *("PMAK-" + f"{HEX[:24]}-{HEX}", "HRKU-" + f"{HEX}-01", "GOCSPX-" + MIXED[:28]),
    *("pul-" + f"{HEX}{HEX[:8]}", "dckr_" + f"pat_{MIXED}", "glsa_" + f"{MIXED}_{HEX[:8]}"),
    *("glc_" + f"eyJv{MIXED}", "gsk_" + f"{MIXED}{MIXED[:20]}", "r8_" + f"{MIXED}L2m3N4"),
    *("figd_" + f"{MIXED}L2m3N4", "sbp_" + f"{HEX}{HEX[:8]}", "ntn_" + f"{MIXED}L2m3N4o5P6q7"),
    "btn_" + f"{HEX[:12]}_{MIXED}L2-m3_N4",
    *("sntrys_" + f"eyJp{MIXED}{MIXED}", "rubygems_" + f"{HEX}{HEX[:16]}"),
    *("lin_" + f"api_{MIXED}L2m3N4o5", "pscale_" + f"tkn_{MIXED}", "pscale_" + f"pw_{MIXED}"),
    "https://hooks." + f"slack.com/services/T01234567/B01234567/{MIXED[:24]}",
    "https://discord." + f"com/api/webhooks/123456789012345678/{MIXED}{MIXED}",
    "https://api.telegram." + f"org/bot123456789:AA{MIXED}",
)
"""One of each shape, each ending in its secret part."""

BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\nVJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1G"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----"
LINES = (*BODY.split("\n"), "q" + "Zk9/" * 15, "b3BlbnNzaC1rZXk=")

FRAGMENTS = (
    *KNOWN,
    ANTHROPIC,
    GITHUB,
    AWS,
    JWT,
    PEM,
    *("password=", "password: ", "hunter2", " ", "\n", '"', "'", "\\", "\\n", "(", ",", ";"),
    *("sk-", "ghp_", "A1b2C3d4E5f6G7h8I9j0K1", "AKIA", "eyJhbGciOiJIUzI1NiJ9", ".", "eyJ"),
    *("-----BEGIN PRIVATE KEY-----\n", "-----BEGIN ", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"),
    *("\n-----END PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", "Authorization: ", "Bearer "),
    *("Basic ", "dXNlcjpwYXNz1234", "https://", "user", ":", "@", "host", "token", "="),
    *("abc", "abcabc", "s3kr1t", "API_KEY", "_ID", "é", "İ", "x" * 70, "1" * 70, "Token "),
    *(f"{before}{line}\n" for before in ("-", "+", "a.pem:12:") for line in LINES),
    *(f"{LINES[2]}\n", "\n", "-", "+", "a.pem:3:", "   7\t", "-----BEGIN EC PRIVATE KEY-----\n"),
    *(*VENDORS, "SG.", "xapp-1-", "pypi-", "ya29.", "hvs.", "AGE-SECRET-", "KEY-1", "SK", HEX),
    *("AccountKey=", "https://hooks.slack.com/services/", "?sig=", MIXED),
    *('"api_key": "', "'secret' => '", "key", "auth", "za", "ż", "the quick brown fox"),
)
