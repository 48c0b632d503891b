"""The settings of quotas: over which time use is measured, and who shares a quota."""

from dataclasses import dataclass

from cordwood.model.settings.setting import int32


@dataclass(frozen=True, init=False, repr=False, eq=False)
class QuotaSettings:
    """Windows, and brokers that share a machine."""

    quota_shared_by: int = int32(
        1,
        "The brokers of this machine that share each quota of clients: this one grants its part. `cordwood serve "
        "--workers` sets it.",
        low=1,
    )
    quota_window_num: int = int32(
        11,
        "The windows over which the use of a quota is measured. A client that used less than its quota may use the "
        "rest of all windows but one at once: 10 s' worth with the defaults.",
        low=2,
        high=3600,
    )
    quota_window_size_seconds: int = int32(
        1, "The length of a window in which the use of a quota is measured.", low=1, high=3600
    )
