"""The failed-event handlers that come with thence, and how those of users are found."""
