"""The values that the literature reports in its text.

The thesis' figures 6.7 to 6.10 are curves, of which only the text about them can be quoted; JBora's
tables 1 to 3 are complete, and of its figures 3, 5 and 6 there are the values that the text names.
"""

from __future__ import annotations

from typing import NamedTuple

THESIS = "Kupšys, JMSGroups: JMS compliant group communication, 6.4"
THESIS_SETTING = (
    "one machine each for every server, member and publisher: Sun Ultra 5/10, 440 MHz, 256 MB, "
    "100 Mbit/s Ethernet, Java 1.5; JORAM and CCB are its two implementations"
)
JBORA = "JBora (ADAPT), section 5"
JBORA_SETTING = (
    "three replicas, one of which sends: PIII 800 MHz, 512 MB, 100 Mbit/s Ethernet, Windows 2000, "
    "Java 1.4, each message written to a local MySQL"
)


class Point(NamedTuple):
    """None: it is not reported."""

    per_s: float | None = None
    latency_ms: float | None = None
    cpu_percent: float | None = None
    degree: str = ""


OFF = {100: Point(596, 11.07), 1000: Point(453, 7.08), 10000: Point(114, 47.28)}
"""Table 1, by size."""

BEST = {
    100: Point(5666, 55.24, degree="28"),
    1000: Point(1577, 28.16, degree="11"),
    10000: Point(201, 29.37, degree="3"),
}
"""Table 2."""

CLIMBING = {1000: Point(1338, 19.58, degree="10 to 12")}
"""Said of fixed sizes in 5.3."""

MIXED_OFF, MIXED_BEST, MIXED_CLIMBING = Point(269), Point(901, degree="6"), Point(800)
"""1000 and 3000 bytes in turn; the last one is figure 5's."""

BURSTS_OFF = Point(260, None, 85)
BURSTS_BEST = Point(660, None, 65, "8")
BURSTS_CLIMBING = Point(430, None, 60, "6 or 10")
"""15 messages, then 20 ms; figure 6."""

SHORT = {
    (5, 0.020): (Point(154, 10, 60), Point(236, 18, 45)),
    (2, 0.005): (Point(285, 5.9, 65), Point(319, 11, 45)),
}
"""Table 3, by burst and pause: without packing, and with the policy."""
