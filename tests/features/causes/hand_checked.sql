-- The four real logs as one table of jobs that ran, what was in use at each moment, and views of the job that the variables
-- `log` and `id` name. Read from the raw text below the variable `traces` alone, without Baton.
-- Sizes: nodes (a100, theta), CPUs of one node (pozidriv), GPUs (openb). Times in seconds; of a100 the naive local ones.
CREATE TABLE jobs (
    log VARCHAR, id VARCHAR, user_name VARCHAR, stem VARCHAR, pool VARCHAR, size DOUBLE, cpus BIGINT, memory BIGINT,
    limit_s BIGINT, submit BIGINT, eligible BIGINT, start BIGINT, stop BIGINT, node_list VARCHAR
);

INSERT INTO jobs
WITH rows AS (
    SELECT string_split(line, chr(9)).list_transform(lambda f: trim(f)) AS f
    FROM read_csv(getvariable('traces') || '/tacc-lonestar6/ls6-a100.log', header = false, delim = chr(1), quote = '',
        escape = '', skip = 3, columns = {'line': 'VARCHAR'})
)
SELECT 'a100', f[1], f[3], regexp_replace(f[2], '[0-9_.+-]+$', ''), '', f[10]::DOUBLE, NULL, NULL,
    f[8]::BIGINT * 60, epoch(f[5]::TIMESTAMP), NULL, epoch(f[4]::TIMESTAMP), epoch(f[6]::TIMESTAMP), NULL
FROM rows;

INSERT INTO jobs
WITH rows AS (
    SELECT string_split(line, '|') AS f
    FROM read_csv(getvariable('traces') || '/xdmod/pozidriv.log', header = false, delim = chr(1), quote = '',
        escape = '', columns = {'line': 'VARCHAR'})
)
SELECT 'pozidriv', f[1], f[9], f[26], f[4], f[19]::DOUBLE / f[18]::BIGINT, f[19]::BIGINT, NULL,
    NULL, epoch(f[11]::TIMESTAMP), epoch(f[12]::TIMESTAMP), epoch(f[13]::TIMESTAMP), epoch(f[14]::TIMESTAMP), f[25]
FROM rows;

INSERT INTO jobs
WITH rows AS (
    SELECT regexp_split_to_array(trim(line), '\s+') AS f
    FROM read_csv(getvariable('traces') || '/swf/theta_2022.swf.gz', header = false, delim = chr(1), quote = '',
        escape = '', columns = {'line': 'VARCHAR'})
    WHERE line NOT LIKE ';%'
)
SELECT 'theta', f[1], NULL, NULL, '', f[5]::DOUBLE, NULL, NULL,
    f[9]::BIGINT, f[2]::BIGINT, NULL, f[2]::BIGINT + f[3]::BIGINT, f[2]::BIGINT + f[3]::BIGINT + f[4]::BIGINT, NULL
FROM rows;

INSERT INTO jobs
SELECT 'openb', name, NULL, NULL, '', if(num_gpu = 1, gpu_milli / 1000, num_gpu), cpu_milli, memory_mib,
    NULL, creation_time, NULL, scheduled_time, deletion_time, NULL
FROM read_csv(getvariable('traces') || '/openb/openb_pod_list_default.csv.gz')
WHERE scheduled_time IS NOT NULL;

CREATE TABLE machines AS
SELECT sn AS name, gpu AS gpus, cpu_milli AS cpus, memory_mib AS memory
FROM read_csv(getvariable('traces') || '/openb/openb_node_list_gpu_node.csv.gz');

-- Rows that start and end at once were cancelled before they ran.
DELETE FROM jobs WHERE stop <= start;

-- Nodes of each job of pozidriv: 'a[01,03-05]' and 'a' by name.
CREATE TABLE placed AS
WITH parts AS (
    SELECT *, regexp_extract(node_list, '^([^\[]*)', 1) AS stub,
        unnest(string_split(coalesce(nullif(regexp_extract(node_list, '\[(.*)\]', 1), ''), ''), ',')) AS part
    FROM jobs WHERE log = 'pozidriv'
)
SELECT * EXCLUDE (stub, part), stub || unnest(CASE WHEN part LIKE '%-%' THEN list_transform(
        range(try_cast(split_part(part, '-', 1) AS BIGINT), try_cast(split_part(part, '-', 2) AS BIGINT) + 1),
        lambda n: lpad(n::VARCHAR, length(split_part(part, '-', 1))::INT, '0')) ELSE [part] END) AS node
FROM parts;

-- What is in use between two moments of a log: all of it, its jobs, and each user's jobs.
CREATE TABLE changes AS
SELECT log, user_name, start AS t, size, 1 AS jobs FROM jobs
UNION ALL SELECT log, user_name, stop, -size, -1 FROM jobs;

CREATE TABLE busy AS
SELECT log, t AS since, lead(t, 1, 9e9::BIGINT) OVER of_log AS until, sum(d) OVER of_log AS size, sum(j) OVER of_log AS jobs
FROM (SELECT log, t, sum(size) AS d, sum(jobs) AS j FROM changes GROUP BY ALL)
WINDOW of_log AS (PARTITION BY log ORDER BY t);

CREATE TABLE busy_of_user AS
SELECT log, user_name, t AS since, lead(t, 1, 9e9::BIGINT) OVER of_user AS until, sum(d) OVER of_user AS size, sum(j) OVER of_user AS jobs
FROM (SELECT log, user_name, t, sum(size) AS d, sum(jobs) AS j FROM changes WHERE user_name IS NOT NULL GROUP BY ALL)
WINDOW of_user AS (PARTITION BY log, user_name ORDER BY t);

CREATE TABLE busy_of_node AS
SELECT node, t AS since, lead(t, 1, 9e9::BIGINT) OVER of_node AS until, sum(d) OVER of_node AS cpus
FROM (
    SELECT node, t, sum(d) AS d
    FROM (SELECT node, start AS t, size AS d FROM placed UNION ALL SELECT node, stop, -size FROM placed) GROUP BY ALL
)
WINDOW of_node AS (PARTITION BY node ORDER BY t);

CREATE TABLE declared AS FROM (VALUES ('a100', 80), ('theta', 4360)) AS t (log, nodes);

CREATE VIEW job AS FROM jobs WHERE log = getvariable('log') AND id = getvariable('id');

-- The log's use within the job's wait, cut to it: nodes in use, and free of those declared.
CREATE VIEW steps AS
SELECT b.size AS busy, d.nodes - b.size AS free, b.jobs, least(b.until, j.start) - greatest(b.since, j.submit) AS seconds
FROM job AS j JOIN busy AS b ON b.log = j.log AND b.since < j.start AND b.until > j.submit
LEFT JOIN declared AS d ON d.log = j.log;

-- Nodes in service near the wait: the most that were in use for an hour in sum, from 3 days before it to 3 days after.
CREATE VIEW service AS
WITH near AS (
    SELECT b.size AS busy, sum(b.until - b.since) AS seconds
    FROM job AS j JOIN busy AS b ON b.log = j.log AND b.since < j.start + 3 * 86400 AND b.until > j.submit - 3 * 86400
    GROUP BY ALL
)
SELECT max(busy) AS nodes FROM (SELECT busy, sum(seconds) OVER (ORDER BY busy DESC) AS at_least FROM near)
WHERE at_least >= 3600;

-- Jobs of others in the same pool that were submitted later and started first; `large`: they ask for no less.
CREATE VIEW overtaking AS
SELECT o.*, o.size >= j.size AND coalesce(o.limit_s >= j.limit_s, true) AND coalesce(o.cpus >= j.cpus, true) AS large
FROM job AS j JOIN jobs AS o ON o.log = j.log AND o.pool = j.pool AND o.submit > j.submit AND o.start < j.start
WHERE o.user_name IS DISTINCT FROM j.user_name OR j.user_name IS NULL;

-- Jobs of the user whose name differs at most in a number at its end, and that ended within the wait.
CREATE VIEW chain AS
SELECT o.*, j.start - o.stop AS before_start_s
FROM job AS j JOIN jobs AS o ON o.log = j.log AND o.user_name = j.user_name AND o.stem = j.stem AND o.id <> j.id
    AND o.stop > j.submit AND o.stop <= j.start;

-- How many jobs the user runs within the wait.
CREATE VIEW own AS
SELECT b.jobs, least(b.until, j.start) - greatest(b.since, j.submit) AS seconds
FROM job AS j JOIN busy_of_user AS b
    ON b.log = j.log AND b.user_name = j.user_name AND b.since < j.start AND b.until > j.submit;

-- Of pozidriv: the part of the wait after the log's first end (of what ended before, the log holds nothing).
CREATE VIEW recorded AS
SELECT j.*, least(j.start, greatest(j.submit, (SELECT min(stop) FROM jobs WHERE log = j.log))) AS since FROM job AS j;

-- Nodes where jobs of the job's pool ran and that had as many CPUs in use at once as it asks for.
CREATE VIEW usable AS
SELECT node, max(cpus) AS cpus FROM busy_of_node
WHERE node IN (SELECT node FROM placed WHERE pool = (SELECT pool FROM job))
GROUP BY node HAVING max(cpus) >= (SELECT size FROM job);

-- When the user's own jobs held one of them, and when one of them had room for the job.
CREATE VIEW own_on_usable AS
SELECT p.node, least(p.stop, r.start) - greatest(p.start, r.since) AS seconds
FROM recorded AS r JOIN placed AS p ON p.user_name = r.user_name AND p.start < r.start AND p.stop > r.since
JOIN usable USING (node);

CREATE VIEW room AS
SELECT b.node, least(b.until, r.start) - greatest(b.since, r.since) AS seconds
FROM recorded AS r JOIN busy_of_node AS b ON b.since < r.start AND b.until > r.since
JOIN usable AS u ON u.node = b.node AND u.cpus - b.cpus >= r.size
UNION ALL
SELECT node, least(min(b.since), any_value(r.start)) - any_value(r.since)
FROM recorded AS r, busy_of_node AS b JOIN usable USING (node)
GROUP BY node HAVING min(b.since) > any_value(r.since);

-- The jobs that left the job's nodes before it came.
CREATE VIEW left_node AS
SELECT j.start - o.stop AS before_start_s, o.user_name = j.user_name AS is_own
FROM job JOIN placed AS j USING (id) JOIN placed AS o USING (node)
WHERE o.id <> j.id AND o.stop <= j.start;
