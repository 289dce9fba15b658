"""Plots of an audit are the same files for the same figures."""

import numpy as np


def late_imports():
    global Panel, draw_power, draw_trade_offs
    from cloister.benchmarks.pages.audit_plots import Panel, draw_power, draw_trade_offs


def test_a_plot_is_the_same_file_each_time(tmp_path):
    alarms = np.linspace(0, 1, 11)
    panels = [Panel(f"method {n}", alarms, (1 - alarms) ** 2, 1 - alarms) for n in range(4)]
    powers = {"one": {10: 0.2, 20: 0.9}, "another": {20: 0.5, 40: 1.0}}
    for name in ("first", "second"):
        draw_trade_offs(panels, tmp_path / name / "trade-offs.png")
        draw_power(powers, 0.95, tmp_path / name / "power.png")
    for name in ("trade-offs.png", "power.png"):
        first, second = ((tmp_path / which / name).read_bytes() for which in ("first", "second"))
        assert first == second
        assert first.startswith(b"\x89PNG") and len(first) < 60_000
