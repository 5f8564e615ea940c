"""How tests have Java started: half the processor time for jobs that are over before the better
compiler would pay."""

# All that it compiles must fit, and for this compiler alone Java has room for only 48 MB.
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"

ENVIRONMENT = {"JAVA_TOOL_OPTIONS": OPTIONS}
"""For programs that choose no options by themselves."""
