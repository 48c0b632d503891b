"""The transaction coordinator: state machines over the records of __transaction_state."""
