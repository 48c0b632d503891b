"""Each alarm fires for the values that it is about, and not for those of a sound broker: promtool plays both.

`tests/cluster/test_alarms.py` has a real cluster fire the alarms of groups, traffic, transactions and brokers.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.deploy.prometheus import promtool
from tests.deploy.test_alarms import RULES, alarms

HOURS = 2
STEPS = HOURS * 60
GIB = 1 << 30
DISK = 'directory="/data"'
PARTITION = 'topic="orders",partition="1"'
POSITION = f'group="readers",{PARTITION}'
EDITION = 'pipeline="orders",edition="v1"'
INPUT = f"{EDITION},{PARTITION}"


def stays(value: float) -> str:
    return f"{value}x{STEPS}"


def grows(value: float, per_minute: float) -> str:
    return f"{value}+{per_minute}x{STEPS}"


def slow(histogram: str) -> dict[str, str]:
    """Nearly all take between half a second and a second."""
    buckets = (("0.5", 1), ("1.0", 100), ("+Inf", 100))
    return {f'{histogram}_bucket{{api="Produce",le="{le}"}}': grows(0, count) for le, count in buckets}


TROUBLE: Mapping[str, Mapping[str, str]] = {
    "CordwoodDiskFillsWithinADay": {
        f"cordwood_disk_free_bytes{{{DISK}}}": f"{30 * GIB}-{GIB // 30}x{STEPS}",
        f"cordwood_disk_size_bytes{{{DISK}}}": stays(100 * GIB),
    },
    "CordwoodDiskNearlyFull": {
        f"cordwood_disk_free_bytes{{{DISK}}}": stays(9 * GIB),
        f"cordwood_disk_size_bytes{{{DISK}}}": stays(100 * GIB),
    },
    "CordwoodDiskFull": {"cordwood_disk_full": stays(1)},
    "CordwoodLoopNearlyFull": {"cordwood_loop_cpu_seconds_total": grows(0, 50)},
    "CordwoodLoopStalls": {"cordwood_loop_stalled_seconds_total": grows(0, 6)},
    "CordwoodSlowSyncs": slow("cordwood_fsync_round_seconds"),
    "CordwoodSlowProduce": slow("cordwood_request_duration_seconds"),
    "CordwoodConnectionsRefused": {"cordwood_connections_refused_total": grows(0, 1)},
    "CordwoodManyConnections": {"cordwood_connections": stays(6000)},
    "CordwoodRequestsPileUp": {"cordwood_unanswered_request_bytes": stays(GIB)},
    "CordwoodMemoryGrows": {"cordwood_resident_memory_bytes": grows(GIB, GIB // 60)},
    "CordwoodManyPartitions": {"cordwood_partitions": stays(5000)},
    "CordwoodHotPartition": {
        'cordwood_topic_traffic_skew{instance="1",topic="orders"}': stays(5),
        f'cordwood_partition_append_bytes_per_second{{instance="2",{PARTITION}}}': stays(200_000),
    },
    "CordwoodPositionsNotWatched": {"cordwood_group_positions_left_out": stays(3)},
    "CordwoodNotScraped": {'up{job="cordwood-east"}': stays(0)},
    "CordwoodBrokerDown": {"cordwood_brokers_away": stays(1)},
    "CordwoodHangingTransaction": {
        f"cordwood_partition_oldest_transaction_seconds{{{PARTITION}}}": grows(0, 60),
    },
    "CordwoodBelowMinInSync": {"cordwood_partitions_below_min_in_sync": stays(1)},
    "CordwoodWithoutLeader": {"cordwood_partitions_without_leader": stays(1)},
    "CordwoodUnderReplicated": {"cordwood_partitions_under_replicated": stays(1)},
    "CordwoodNoController": {f'cordwood_controller{{job="c",instance="{node}"}}': stays(0) for node in (1, 2, 3)},
    "CordwoodAppendsRefused": {'cordwood_refused_appends_total{error="DISK_FULL"}': grows(0, 1)},
    "CordwoodGroupAboutToLoseRecords": {
        f"cordwood_group_time_to_data_loss_seconds{{{POSITION}}}": stays(60),
        f"cordwood_group_lag_records{{{POSITION}}}": stays(5),
    },
    "CordwoodGroupLostRecords": {f"cordwood_group_lost_records{{{POSITION}}}": stays(7)},
    "CordwoodDamagedRecords": {f"cordwood_partition_damaged_offsets{{{PARTITION}}}": stays(7)},
    "CordwoodLostDirectory": {"cordwood_lost_directories": stays(1)},
    "CordwoodCertificateExpires": {
        'cordwood_certificate_expires_timestamp_seconds{listener="SSL"}': stays(10 * 86_400),
    },
    "CordwoodRulesLate": slow("cordwood_rules_lag_seconds"),
    "CordwoodTokenKeysNotFetched": {
        'cordwood_token_key_failed_fetches{source="https://login.example.com/keys"}': stays(3)
    },
    "CordwoodLogInsRefused": {'cordwood_log_ins_total{mechanism="PLAIN",outcome="refused"}': grows(0, 120)},
    "CordwoodRightsMissing": {'cordwood_missing_rights_total{operation="Read",resource="topic"}': grows(0, 120)},
    "CordwoodTrailLostEvents": {"cordwood_security_trail_lost_events_total": grows(0, 1)},
    "CordwoodSetAside": {"cordwood_set_aside_directories": stays(1)},
    "CordwoodPipelineFailed": {f"cordwood_pipeline_failed{{{EDITION}}}": stays(1)},
    "CordwoodPipelineLagGrows": {f'cordwood_pipeline_lag_records{{instance="slow",{INPUT}}}': grows(2_000, 10)},
    "CordwoodPipelineQuarantineGrows": {f"cordwood_pipeline_quarantined_total{{{EDITION}}}": grows(0, 1)},
    "CordwoodPipelineAboutToLoseRecords": {
        f"cordwood_pipeline_time_to_data_loss_seconds{{{INPUT}}}": stays(60),
        f"cordwood_pipeline_lag_records{{{INPUT}}}": stays(5),
    },
    "CordwoodPipelineLostRecords": {f"cordwood_pipeline_lost_records{{{INPUT}}}": stays(7)},
    "CordwoodPipelineInputsUnknown": {f"cordwood_pipeline_inputs_watched{{{EDITION}}}": stays(0)},
}

FIRES: dict[str, object] = {"labels": "{}", "value": 1}

SOUND: Mapping[str, str] = {
    'up{job="cordwood"}': stays(1),
    'up{job="somebody-else"}': stays(0),
    f"cordwood_disk_free_bytes{{{DISK}}}": f"{80 * GIB}-1000x{STEPS}",
    f"cordwood_disk_size_bytes{{{DISK}}}": stays(100 * GIB),
    "cordwood_disk_full": stays(0),
    "cordwood_loop_cpu_seconds_total": grows(0, 20),
    "cordwood_loop_stalled_seconds_total": grows(0, 0.1),
    "cordwood_connections_refused_total": stays(3),
    "cordwood_security_trail_lost_events_total": stays(4),
    "cordwood_resident_memory_bytes": stays(GIB),
    'cordwood_topic_traffic_skew{topic="orders"}': stays(2),
    'cordwood_topic_traffic_skew{topic="seldom"}': stays(100),
    f"cordwood_partition_append_bytes_per_second{{{PARTITION}}}": stays(200_000),
    "cordwood_brokers_away": stays(0),
    f"cordwood_partition_oldest_transaction_seconds{{{PARTITION}}}": stays(60),
    'cordwood_controller{job="c",instance="1"}': stays(1),
    'cordwood_controller{job="c",instance="2"}': stays(0),
    'cordwood_refused_appends_total{error="EARLY_BATCH"}': grows(0, 1),
    f"cordwood_group_time_to_data_loss_seconds{{{POSITION}}}": stays(60),
    f"cordwood_group_lag_records{{{POSITION}}}": stays(0),
    f"cordwood_group_lost_records{{{POSITION}}}": stays(0),
    'cordwood_certificate_expires_timestamp_seconds{listener="SSL"}': stays(90 * 86_400),
    f"cordwood_pipeline_failed{{{EDITION}}}": stays(0),
    f"cordwood_pipeline_lag_records{{{INPUT}}}": stays(0),
    'cordwood_pipeline_lag_records{pipeline="backfill",edition="v1",topic="orders",partition="0"}': f"90000-10x{STEPS}",
    f"cordwood_pipeline_quarantined_total{{{EDITION}}}": stays(12),
    f"cordwood_pipeline_time_to_data_loss_seconds{{{INPUT}}}": stays(60),
    f"cordwood_pipeline_lost_records{{{INPUT}}}": stays(0),
    f"cordwood_pipeline_inputs_watched{{{EDITION}}}": stays(1),
}


def test_every_alarm_is_played() -> None:
    assert TROUBLE.keys() == alarms().keys()


@pytest.mark.stories
def test_each_alarm_fires_in_its_trouble_and_none_at_a_sound_broker(tmp_path: Path) -> None:
    # All troubles at once, each at a broker of its own: promtool takes seconds for each play.
    together = {at_broker(name, alarm): values for alarm, series in TROUBLE.items() for name, values in series.items()}
    fires = {f'count(ALERTS{{alertname="{alarm}",alertstate="firing"}}) > bool 0': [FIRES] for alarm in TROUBLE}
    tests = [played(together, fires), played(SOUND, {'count(ALERTS{alertstate="firing"})': []})]
    path = tmp_path / "played.yml"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    verdict = promtool("test", "rules", str(path))
    failed = re.findall(r'alertname=\\"(\w+)', verdict.stdout + verdict.stderr)
    assert verdict.returncode == 0, failed or verdict.stdout + verdict.stderr


def at_broker(name: str, broker: str) -> str:
    metric, _, labels = name.removesuffix("}").partition("{")
    if "instance=" in labels:
        return name
    return f'{metric}{{instance="{broker}"{"," + labels if labels else ""}}}'


def played(series: Mapping[str, str], expected: Mapping[str, list[dict[str, object]]]) -> dict[str, object]:
    """`expected`: what expressions give in the end."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expression, "eval_time": f"{HOURS}h", "exp_samples": samples}
            for expression, samples in expected.items()
        ],
    }
