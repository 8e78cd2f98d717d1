"""Workers that Ray cannot make: slices of TPUs from reservations and Google's queue."""
