"""`cordwood serve --workers`: several brokers on one machine and one data directory."""
