"""Which kernels calls launch."""


def launched(monkeypatch, *begin):
    """Launches of kernels whose names begin so, as a list that grows; calls remember nothing."""
    from maskalg.backends.triton import backend
    from maskalg.backends.triton.launching.launch import Launch

    found, run = [], Launch.run

    def noted(launch):
        if launch.kernel.__name__.startswith(begin):
            found.append(launch)
        return run(launch)

    monkeypatch.setattr(Launch, "run", noted)
    # `causal` is one object: other tests may have called it with these shapes.
    monkeypatch.setattr(backend, "launch_again", lambda *_: None)
    return found


def names(launches):
    """The names of their kernels."""
    return [launch.kernel.__name__ for launch in launches]
