-- Measured GPU utilization of each attempt of cluster $1: samples taken on its nodes in [start, end), minute by minute.
-- Where the placement names the GPUs held, only their samples count; else all GPUs of the node.
-- An attempt with no recorded end is taken to end when one of its GPUs is next given out.
WITH ran AS (
    SELECT p.job_key, p.attempt, p.node, a.start_utc, a.end_utc,
        CAST(string_split(nullif(p.gpu_numbers, ''), ',') AS BIGINT[]) AS gpu_list
    FROM placements AS p
    JOIN attempts AS a USING (cluster, job_key, attempt)
    WHERE p.cluster = $1 AND a.start_utc IS NOT NULL
),
following AS (
    SELECT job_key, attempt, min(start_utc) OVER (
        PARTITION BY node, gpu ORDER BY start_utc
        RANGE BETWEEN INTERVAL 1 MICROSECOND FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS next_utc
    FROM (SELECT job_key, attempt, node, start_utc, unnest(gpu_list) AS gpu FROM ran)
),
given_out_again AS (
    SELECT job_key, attempt, min(next_utc) AS next_utc FROM following GROUP BY ALL
),
on_node AS (
    SELECT node, sample_utc, gpu, utilization_percent FROM gpu_utilization WHERE cluster = $1
),
sampled AS (
    SELECT min(sample_utc) AS first_utc, max(sample_utc) AS last_utc FROM on_node
),
-- Samples often cover a few days of months of jobs: only the attempts of those days are worth joining.
held AS (
    SELECT r.job_key, r.attempt, r.node, r.start_utc, r.gpu_list,
        coalesce(r.end_utc, g.next_utc, TIMESTAMP '9999-01-01') AS until_utc
    FROM ran AS r
    LEFT JOIN given_out_again AS g USING (job_key, attempt)
    JOIN sampled AS s ON r.start_utc <= s.last_utc
        AND coalesce(r.end_utc, g.next_utc, TIMESTAMP '9999-01-01') > s.first_utc
),
-- How many attempts hold a node in a sampled minute, whichever GPUs they hold.
holders AS (
    SELECT m.node, m.sample_utc, count(*) AS attempts_there
    FROM (SELECT DISTINCT node, sample_utc FROM on_node) AS m
    JOIN held AS h ON m.node = h.node AND m.sample_utc >= h.start_utc AND m.sample_utc < h.until_utc
    GROUP BY ALL
),
samples AS (
    SELECT h.job_key, h.attempt, s.node, s.sample_utc, s.utilization_percent, h.gpu_list IS NOT NULL AS names_gpus
    FROM on_node AS s
    JOIN held AS h ON s.node = h.node AND s.sample_utc >= h.start_utc AND s.sample_utc < h.until_utc
    WHERE h.gpu_list IS NULL OR list_contains(h.gpu_list, s.gpu)
),
minutes AS (
    SELECT job_key, attempt, node, sample_utc,
        count(utilization_percent) > 0 AS is_online,
        coalesce(max(utilization_percent) = 0, false) AS is_idle,
        count(utilization_percent) AS online
    FROM samples
    GROUP BY ALL
),
node_minutes AS (
    SELECT m.job_key, m.attempt,
        count(*) AS node_minutes,
        count(*) FILTER (WHERE h.attempts_there > 1) AS shared_node_minutes,
        count(*) FILTER (WHERE m.is_online) AS online_node_minutes,
        count(*) FILTER (WHERE m.is_idle) AS idle_node_minutes,
        coalesce(sum(m.online) FILTER (WHERE m.is_idle), 0)::BIGINT AS idle_samples
    FROM minutes AS m
    JOIN holders AS h USING (node, sample_utc)
    GROUP BY ALL
),
gpu_minutes AS (
    SELECT job_key, attempt,
        CASE WHEN bool_and(names_gpus) THEN 'gpu' ELSE 'node' END AS attribution,
        count(*) AS samples,
        count(*) - count(utilization_percent) AS offline_samples,
        avg(utilization_percent) AS utilization_mean_percent,
        quantile_cont(utilization_percent, 0.5) AS utilization_p50_percent,
        quantile_cont(utilization_percent, 0.9) AS utilization_p90_percent,
        quantile_cont(utilization_percent, 0.95) AS utilization_p95_percent
    FROM samples
    GROUP BY ALL
)
SELECT $1 AS cluster, *, idle_node_minutes / nullif(online_node_minutes, 0) AS idle_share
FROM gpu_minutes
JOIN node_minutes USING (job_key, attempt)
ORDER BY job_key, attempt
