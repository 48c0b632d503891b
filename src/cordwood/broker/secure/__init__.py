"""Users before the first start, and `cordwood serve --secure`: an authority, a certificate, an administrator, and files
for clients."""
