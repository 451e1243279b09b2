"""HTTP between the parties of a deployment: the application, the server it runs in, and the client."""
