<?php
// A request that is not done in any grace period.
set_time_limit(0);
while (true) {
    usleep(200000);
}
