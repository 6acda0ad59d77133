"""Names of UNIQUE keys: what a duplicate means depends on which key refused the row.

A test compares them with the schema.
"""

from typing import Final

ACTIVE_SLOT: Final = "uk_active_slot"  # the partition has an active batch
MERGE_REQUEST: Final = "uk_merge_request"  # another batch has recorded this merge request
OPERATION: Final = "uk_operation_operation_id"  # the operation_id is taken
WAITING: Final = "uk_operation_id"  # the operation is in the waiting set or in a batch
RELATION: Final = "uk_relation"  # the relation has a row
REQUEST_ID: Final = "uk_request_id"  # the idempotency key came before
DELIVERY: Final = "uk_delivery_key"  # the webhook delivery came before
PRIMARY: Final = "PRIMARY"
