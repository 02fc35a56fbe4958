"""A celery program with its broker in memory. With TASK=slow its worker has a task that is not done in any grace period."""
import os
import time

from celery import Celery
from celery.signals import worker_ready

app = Celery("tasks", broker="memory://")


@app.task
def slow():
    open("/ready", "w").close()
    time.sleep(100000)


@worker_ready.connect
def begin(**_):
    if os.environ.get("TASK") == "slow":
        slow.delay()
    else:
        open("/ready", "w").close()
