"""`cordwood pipeline …`: pipelines on Spark. One file per command; what they do is in `cordwood.pipelines`."""
