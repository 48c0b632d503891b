"""`cordwood recover`: what a start set aside, and how it comes back. Works on the directory of a stopped broker."""
