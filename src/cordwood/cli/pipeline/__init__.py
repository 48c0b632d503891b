"""`cordwood pipeline …`: pipelines on Spark. One file per command; the work is in `cordwood.pipelines`."""
