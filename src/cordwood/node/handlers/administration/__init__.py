"""Requests about the cluster, its topics and settings, and this broker's disks."""
