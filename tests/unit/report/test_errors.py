"""Errors carry what their reader needs, also to another process."""

import pickle

import pytest

from compute_agent import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.PlacementUnavailable("away", status=503, retry_after=3.0, path="/x"),
        errors.ReshapeFailed(error="consumer c does not fit", status=409),
        errors.ResourceProviderSyncFailed(
            [errors.SyncFailure("u", "n", "traits", errors.TraitCreationFailed("no", status=400))]
        ),
        errors.ReshapeNeeded("now"),
    ],
)
def test_an_error_survives_the_way_to_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {k: v for k, v in vars(again).items() if k != "failures"} == {
        k: v for k, v in vars(error).items() if k != "failures"
    }


def test_collected_failures_name_every_provider_and_aspect():
    failures = [
        errors.SyncFailure(
            "u1", "host", "inventories", errors.InvalidInventory("reserved > total")
        ),
        errors.SyncFailure("u2", "gpu", "traits", errors.TraitCreationFailed("no such trait")),
    ]
    error = errors.ResourceProviderSyncFailed(failures)
    assert str(error) == (
        "2 change(s) could not be written to placement: inventories of host (u1): "
        "reserved > total; traits of gpu (u2): no such trait"
    )
    assert error.failures == tuple(failures)


def test_a_reshape_that_failed_is_no_failed_update():
    error = errors.ReshapeFailed(error="x")
    assert not isinstance(error, errors.ResourceProviderUpdateFailed)
    assert str(error) == "The reshape failed: x"
    assert error.error == "x"
