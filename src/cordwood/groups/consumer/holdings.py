"""The partitions that members of a group have, or have not given back yet, updated by every replayed record.

A partition has one holder at a time. Only while a compacted log is replayed, in another order than written, may it seem
to have several: then each holder counts, and the partition is free when the last has given it back.
"""

from cordwood.groups.consumer.partition_sets import Share


class Holdings:
    __slots__ = ("_layers",)

    def __init__(self) -> None:
        self._layers: list[dict[int, int]] = [{}]
        """Masks by topic: the partitions with at least one holder, then with at least two, at least three, and so on.
        """

    @property
    def contested(self) -> bool:
        return len(self._layers) > 1

    def among(self, share: Share) -> Share:
        """The partitions of a share that have a holder."""
        return share & Share(self._layers[0])

    def take(self, share: Share) -> None:
        for topic, mask in share.masks.items():
            for layer in self._layers:
                held = layer.get(topic, 0)
                layer[topic] = held | mask
                mask &= held
                if not mask:
                    break
            else:
                self._layers.append({topic: mask})

    def release(self, share: Share) -> None:
        """Gives back a share that was added before."""
        for topic, mask in share.masks.items():
            for layer in reversed(self._layers):
                if both := mask & layer.get(topic, 0):
                    mask ^= both
                    layer[topic] ^= both
                    if not layer[topic]:
                        del layer[topic]
        while self.contested and not self._layers[-1]:
            self._layers.pop()
