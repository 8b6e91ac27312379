SELECT * FROM {{ source('public', 'sales') }} WHERE paid
