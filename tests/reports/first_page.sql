-- Four real logs as the tables that a person would recompute the first page of the report from.
-- Read from the raw text below the variable `traces` alone, without Baton. All views are of the log named by the variable `log`.
-- part is how much of each of its GPUs a job holds. start is null of jobs that never ran; stop of those that run on is the log's last second. Times in seconds of UTC.
CREATE TABLE submitted (
    log VARCHAR, id VARCHAR, user_name VARCHAR, pool VARCHAR, completed BOOLEAN, nodes BIGINT, cores BIGINT, gpus BIGINT,
    submit BIGINT, start BIGINT, stop BIGINT, node_list VARCHAR,
    part DOUBLE
);

-- Local time of Chicago -> UTC: both offsets hold in the hour that comes twice when summer time ends (2022-11-06).
CREATE TABLE offsets AS FROM (VALUES
    (0::BIGINT, epoch(TIMESTAMP '2022-11-06 01:59:59')::BIGINT, 5 * 3600),
    (epoch(TIMESTAMP '2022-11-06 01:00:00')::BIGINT, epoch(TIMESTAMP '2023-03-12 01:59:59')::BIGINT, 6 * 3600)
) AS t (since, until, s);

-- No State: a run of at least its limit timed out, any other with exit code 0:0 completed. Start = End: cancelled in the queue.
-- Every node has 3 GPUs and is held by one job. Local times; of the hour that comes twice (2022-11-06) the order of a job's
-- three times and its limit say which one is meant.
INSERT INTO submitted
WITH fields AS (
    SELECT string_split(line, chr(9)).list_transform(lambda f: trim(f)) AS f
    FROM read_csv(getvariable('traces') || '/tacc-lonestar6/ls6-a100.log', header = false, delim = chr(1), quote = '',
        escape = '', skip = 3, columns = {'line': 'VARCHAR'})
), local AS (
    SELECT f[1] AS id, f[3] AS user_name, f[10]::BIGINT AS nodes, f[9] = '0:0' AS zero, f[8]::BIGINT * 60 AS limit_s,
        epoch(f[5]::TIMESTAMP)::BIGINT AS submit, epoch(f[4]::TIMESTAMP)::BIGINT AS start, epoch(f[6]::TIMESTAMP)::BIGINT AS stop
    FROM fields
), readings AS (
    SELECT id, user_name, nodes, zero, limit_s, submit + a.s AS submit, start + b.s AS start, stop + c.s AS stop
    FROM local, offsets AS a, offsets AS b, offsets AS c
    WHERE submit BETWEEN a.since AND a.until AND start BETWEEN b.since AND b.until AND stop BETWEEN c.since AND c.until
), utc AS (
    SELECT DISTINCT ON (id) * FROM readings
    ORDER BY id, (submit > start)::INT + (start > stop)::INT, (stop - start > limit_s + 60)::INT, submit, start, stop
)
SELECT 'a100', id, user_name, NULL, stop - start < limit_s AND zero AND stop > start, nodes, NULL, 3 * nodes,
    submit, if(stop > start, start, NULL), stop, NULL, 1
FROM utc;

INSERT INTO submitted
WITH fields AS (
    SELECT string_split(line, '|') AS f
    FROM read_csv(getvariable('traces') || '/xdmod/pozidriv.log', header = false, delim = chr(1), quote = '',
        escape = '', columns = {'line': 'VARCHAR'})
)
SELECT 'pozidriv', f[1], f[9], f[4], f[17] = 'COMPLETED', f[18]::BIGINT, f[19]::BIGINT, NULL, epoch(f[11]::TIMESTAMP),
    if(f[17] LIKE 'CANCELLED%' AND f[13] = f[14], NULL, epoch(f[13]::TIMESTAMP)), epoch(f[14]::TIMESTAMP), f[25], 1
FROM fields;

-- Every job has status 0, and 0 of all means that the log does not say how jobs ended.
INSERT INTO submitted
WITH fields AS (
    SELECT regexp_split_to_array(trim(line), '\s+').list_transform(lambda f: f::BIGINT) AS f
    FROM read_csv(getvariable('traces') || '/swf/theta_2022.swf.gz', header = false, delim = chr(1), quote = '',
        escape = '', columns = {'line': 'VARCHAR'})
    WHERE line NOT LIKE ';%'
)
SELECT 'theta', f[1]::VARCHAR, NULL, NULL, if(f[11] = 0, NULL, f[11] = 1), f[5], NULL, NULL,
    f[2], f[2] + f[3], f[2] + f[3] + f[4], NULL, 1
FROM fields;

-- gpu_milli: a pod may share its GPU with others.
INSERT INTO submitted
SELECT 'openb', name, NULL, gpu_spec, pod_phase = 'Succeeded', 1, NULL, num_gpu, creation_time, scheduled_time, deletion_time, NULL,
    gpu_milli / 1000
FROM read_csv(getvariable('traces') || '/openb/openb_pod_list_default.csv.gz');

CREATE VIEW job AS FROM submitted WHERE log = getvariable('log');

CREATE VIEW run AS
SELECT *, start - submit AS wait, CASE getvariable('resource') WHEN 'GPU' THEN gpus * part WHEN 'core' THEN cores ELSE nodes END AS held
FROM job WHERE start IS NOT NULL;

-- Nodes of each job of pozidriv: 'a[01,03-05]' and 'a' by name, with the job's cores spread over them.
CREATE VIEW placed AS
WITH parts AS (
    SELECT start, stop, cores // nodes AS cores, regexp_extract(node_list, '^([^\[]*)', 1) AS stub,
        unnest(string_split(regexp_extract(node_list, '\[(.*)\]', 1), ',')) AS part
    FROM run WHERE node_list IS NOT NULL
)
SELECT start, stop, cores, stub || unnest(CASE WHEN part LIKE '%-%' THEN list_transform(
        range(split_part(part, '-', 1)::BIGINT, split_part(part, '-', 2)::BIGINT + 1),
        lambda n: lpad(n::VARCHAR, length(split_part(part, '-', 1))::INT, '0')) ELSE [part] END) AS node
FROM parts;

-- The most cores that each node of pozidriv gave out at once.
CREATE VIEW node AS
SELECT node, max(cores) AS cores FROM (
    SELECT node, sum(cores) OVER (PARTITION BY node ORDER BY t) AS cores
    FROM (SELECT node, start AS t, cores FROM placed UNION ALL SELECT node, stop, -cores FROM placed)
)
GROUP BY node;

-- When the log shows all that ran: from its first end on, since of what ended earlier it holds nothing, if many jobs began
-- before that; else from the first start. Shares are of whole hours from then on, up to the last moment.
CREATE VIEW shown AS
SELECT min(stop) AS first_end, min(start) AS first_start, max(stop) AS until,
    if(getvariable('is_cut'), (min(stop) + 3599) // 3600 * 3600, min(start)) AS since
FROM run WHERE stop > start;

CREATE VIEW in_use AS
SELECT sum(held * greatest(0, stop - greatest(start, since))) / (any_value(until) - any_value(since)) AS mean FROM run, shown;

CREATE VIEW waiting_user AS
SELECT user_name AS name, sum(wait) AS waited, count(*) AS jobs FROM run WHERE user_name IS NOT NULL GROUP BY ALL ORDER BY 2 DESC, 1 LIMIT 1;

CREATE VIEW holder AS
SELECT user_name AS name, sum(held * (stop - start)) AS held FROM run WHERE user_name IS NOT NULL GROUP BY ALL ORDER BY 2 DESC, 1 LIMIT 1;

-- Jobs that ran by size and by the hour of their submission, local time.
CREATE VIEW grouped AS
WITH of AS (
    SELECT user_name, wait, CASE getvariable('resource') WHEN 'GPU' THEN gpus WHEN 'core' THEN cores ELSE nodes END AS size,
        hour(timezone(getvariable('zone'), to_timestamp(submit))) AS hour
    FROM run
), pairs AS (
    SELECT 'size' AS kind, user_name, wait,
        CASE WHEN size = 0 THEN NULL WHEN size = 1 THEN '1' ELSE CASE getvariable('resource')
            WHEN 'GPU' THEN CASE WHEN size <= 4 THEN '2 to 4' WHEN size <= 8 THEN '5 to 8' ELSE 'more than 8' END
            WHEN 'core' THEN CASE WHEN size <= 8 THEN '2 to 8' WHEN size <= 32 THEN '9 to 32' WHEN size <= 128 THEN '33 to 128' ELSE 'more than 128' END
            ELSE CASE WHEN size <= 4 THEN '2 to 4' WHEN size <= 16 THEN '5 to 16' WHEN size <= 128 THEN '17 to 128' ELSE 'more than 128' END
        END END AS value
    FROM of UNION ALL SELECT 'hour', user_name, wait, hour::VARCHAR FROM of
)
SELECT kind, value, count(*) AS jobs, avg(wait) AS mean, avg(wait) FILTER (NOT is_first) AS mean_of_others,
    count(*) FILTER (NOT is_first) AS jobs_of_others
FROM (SELECT *, user_name = (SELECT name FROM waiting_user) AS is_first FROM pairs WHERE value IS NOT NULL) GROUP BY ALL;

-- The value of each kind that waits longest, if it waits 1.5 times the mean of all, with and without the user who waits most;
-- groups of fewer than 30 jobs or 1 % of them do not count.
CREATE VIEW pattern AS
WITH all_jobs AS (
    SELECT count(*) AS jobs, avg(wait) AS mean,
        avg(wait) FILTER (user_name <> (SELECT name FROM waiting_user)) AS mean_of_others,
        count(*) FILTER (user_name <> (SELECT name FROM waiting_user)) AS jobs_of_others
    FROM run
), longest AS (
    SELECT DISTINCT ON (kind) g.* FROM grouped AS g, all_jobs AS a
    WHERE g.jobs >= greatest(30, 0.01 * a.jobs) ORDER BY kind, g.mean DESC
)
SELECT l.kind, l.value, l.mean FROM longest AS l, all_jobs AS a
WHERE l.mean >= 1.5 * a.mean AND l.mean_of_others >= 1.5 * a.mean_of_others
    AND l.jobs_of_others >= greatest(30, 0.01 * a.jobs_of_others);

CREATE VIEW waiting_pool AS
SELECT pool AS name, sum(wait) AS waited FROM run WHERE pool IS NOT NULL GROUP BY ALL ORDER BY 2 DESC LIMIT 1;
