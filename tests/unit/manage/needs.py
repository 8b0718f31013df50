"""Needs of instances, as requests for candidates."""

from collections.abc import Mapping

from compute_agent.request.candidate_request import CandidateRequest, RequestGroup


def need(unsuffixed: Mapping[str, int], **groups: RequestGroup) -> CandidateRequest:
    whole = {"": RequestGroup(dict(unsuffixed)), **groups}
    return CandidateRequest({name: group for name, group in whole.items() if not group.empty})


def group(**resources: int) -> RequestGroup:
    return RequestGroup(resources)
