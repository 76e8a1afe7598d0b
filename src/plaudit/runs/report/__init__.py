"""The one place that makes pages: functions give data, templates lay them out, charts draw them."""
