"""Views: jobs, their explanations and the bridge's status as the page, the API and the commands show them."""
