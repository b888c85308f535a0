"""Planted secrets and the text around them."""

KNOWN = ("s3kr1t-Value-99", "abcabcabc1", "Pa$$w0rd!x", "zażółć-gęślą-7")

ANTHROPIC = "sk-ant-api03-" + "aB3dE6gH9jK2mN5pQ8sT"
GITHUB = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1L2M3N4O5P6"
AWS = "AKIA" + "IOSFODNN7EXAMPL3"
GOOGLE = "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1L2M3N4O5P6Q"
SLACK = "xoxb-" + "123456789012-abcdefGHIJ"
GITLAB = "glpat-" + "x1Y2z3A4b5C6d7E8f9G0"
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
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
    *('"api_key": "', "'secret' => '", "key", "auth", "za", "ż", "the quick brown fox"),
)
