"""Requests about users and their authentication."""
