"""The docs site: pages generated from the code, links of the repository, pictures of commands."""
