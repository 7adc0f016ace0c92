from __future__ import annotations

from acme_quant.launch.running.restarts import WINDOW_S, Restarts


def test_pauses_double_until_there_were_too_many_deaths() -> None:
    restarts = Restarts(3, clock=lambda: 0.0)
    assert [restarts.after_death("actor_0") for _ in range(4)] == [1.0, 2.0, 4.0, None]
    assert "died 4 times within 10 minutes" in restarts.history("actor_0")


def test_nodes_are_counted_apart() -> None:
    restarts = Restarts(1, clock=lambda: 0.0)
    assert restarts.after_death("actor_0") == 1.0
    assert restarts.after_death("actor_1") == 1.0
    assert restarts.history("actor_1") == ""


def test_old_deaths_are_forgotten() -> None:
    now = [0.0]
    restarts = Restarts(1, clock=lambda: now[0])
    for _ in range(5):
        assert restarts.after_death("actor_0") == 1.0
        now[0] += WINDOW_S + 1


def test_no_restarts_means_none() -> None:
    assert Restarts(0).after_death("actor_0") is None
