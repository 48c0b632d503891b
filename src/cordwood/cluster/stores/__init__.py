"""Where the cluster's metadata is kept: one contract, several stores."""
