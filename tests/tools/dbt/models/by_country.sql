SELECT country, COUNT(*) AS n, ERROR_BAR(COUNT(*)) AS bar FROM {{ ref('paid_sales') }} GROUP BY country
