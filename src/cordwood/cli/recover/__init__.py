"""`cordwood recover`: repairs metadata and puts back partitions, in the data directory of a stopped broker."""
