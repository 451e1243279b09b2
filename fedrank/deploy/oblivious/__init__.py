"""Reports that cannot be linked: blind tokens (RFC 9474, RFC 9578) and an oblivious relay (RFC 9458, RFC 9292)."""
