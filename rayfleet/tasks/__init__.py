"""The tasks, as one collection: ``from rayfleet.tasks import ns``.

Another repository adds them to its own with ``ns.add_collection(rayfleet.tasks.ns, "fleet")``.
Only thin wrappers live here; everything else is free of Invoke. Who imports them is a command
line, and ends like others when nobody reads its output.
"""

from __future__ import annotations

from invoke.collection import Collection

from rayfleet.project import DEFAULT_FLEET, DEFAULT_STATE
from rayfleet.tasks import (
    auth,
    cluster,
    dashboard,
    doctor,
    fleet,
    garbage,
    head,
    image,
    job,
    log,
    registry,
    release,
    rollout,
    sandbox,
    vault,
    worker,
)
from rayfleet.tasks.broken_pipe import end_like_others

end_like_others()

ns = Collection(
    image.cluster_docker,
    cluster.start,
    cluster.stop,
    cluster.restart,
    cluster.status,
    dashboard.dashboard,
    doctor.doctor,
    fleet.update_configs,
    garbage.gc,
    log.tail_logs,
    head.ssh,
    head.execute,
    head.upload,
    head.download,
    release.release,
    auth=Collection(
        *(auth.init, auth.fetch, auth.env, auth.rotate, auth.check, auth.open_dashboard, auth.keys),
    ),
    fleet=Collection(fleet.lint, fleet.list_clusters),
    image=Collection(
        image.build, image.publish, image.promote, image.rollback, image.history, image.inspect
    ),
    registry=Collection(registry.login, registry.cleanup, registry.preview, registry.show),
    jobs=Collection(
        *(job.submit, job.list_jobs, job.logs, job.wait, job.stop),
        *(vault.backup, vault.restore, vault.vault),
    ),
    rollouts=Collection(
        *(rollout.list_rollouts, rollout.show, rollout.resume, rollout.pause, rollout.promote),
        *(rollout.abort, rollout.retry, rollout.skip, rollout.rollback, rollout.unlock),
    ),
    workers=Collection(worker.add, worker.list_workers, worker.init, worker.remove),
    sandbox=Collection(sandbox.up, sandbox.down, sandbox.status, sandbox.preempt),
)
ns.configure(
    {
        "fleet": DEFAULT_FLEET,
        "state": DEFAULT_STATE,
        # Invoke would read our stdin for its children, and dies of it under CI.
        "run": {"in_stream": False},
    }
)
